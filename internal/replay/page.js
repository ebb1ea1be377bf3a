"use strict";
(function () {
  var key = document.getElementById("key");
  if (!key) return;
  var views = document.querySelectorAll(".view");
  function show() {
    views.forEach(function (v, i) { v.hidden = String(i) !== key.value; });
  }
  key.addEventListener("change", show);
  document.getElementById("chooser").hidden = views.length < 2;
  show();
})();

"use strict";
document.querySelectorAll(".levels").forEach(function (section) {
  var key = section.querySelector("select");
  var views = section.querySelectorAll(".view");
  function show() {
    views.forEach(function (v, i) { v.hidden = String(i) !== key.value; });
  }
  key.addEventListener("change", show);
  section.querySelector(".chooser").hidden = views.length < 2;
  show();
});

-- A cell belongs to one key. Cells that new keys of full limits shared go, with what was charged in them.
delete from headgate_admissions where left(cell_key, 16) = 'headgate:shared:'
//
delete from headgate_entries where left(cell_key, 16) = 'headgate:shared:'
//
delete from headgate_cells where left(cell_key, 16) = 'headgate:shared:'
//

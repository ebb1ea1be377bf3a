package law

// Components returns for each op the index of the first op of its component. Two ops are in one component if they share
// a cell or a request, directly or through other ops. Components have no cell in common, so they may be applied in any
// order or at once, as long as the ops of each stay in order.
func Components(ops []Op) []int {
	parent := make([]int, len(ops))
	find := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	join := func(i, j int) {
		i, j = find(i), find(j)
		parent[max(i, j)] = min(i, j)
	}
	cells := make(map[Cell]int, len(ops))
	for i := range ops {
		parent[i] = i
		if i > 0 && ops[i].Group == ops[i-1].Group {
			join(i, i-1)
		}
		if j, ok := cells[ops[i].Cell]; ok {
			join(i, j)
		} else {
			cells[ops[i].Cell] = i
		}
	}
	for i := range parent {
		parent[i] = find(i)
	}
	return parent
}

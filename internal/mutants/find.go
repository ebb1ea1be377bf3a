package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/housetest"
)

// mutant is one change of a package.
type mutant struct {
	n         int
	file      string // without its folder
	line, col int
	in        string // function or method; "" outside
	was, is   string // source text; is "" if a statement is left out
}

func (m *mutant) String() string {
	is := m.is
	if is == "" {
		is = "nothing"
	}
	return fmt.Sprintf("%s:%d:%d in %s: %s for %s", m.file, m.line, m.col, m.in, short(is), short(m.was))
}

// short returns source text on one line.
func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 90 {
		s = s[:90] + "..."
	}
	return "`" + s + "`"
}

// edit inserts text at an offset of a file.
type edit struct {
	at   int
	text string
}

// finder finds the mutants of a file, and writes all of them into it: each is done if mutantOn(its number) says so.
type finder struct {
	source  *housetest.Source
	file    *ast.File
	text    string
	name    string
	in      string
	mutants *[]*mutant

	before, after []edit // of an expression or statement; those of the outer ones first
}

// find returns the mutants of a package, and the text of its files with all of them.
func find(s *housetest.Source) (mutants []*mutant, files map[string]string, err error) {
	files = map[string]string{}
	for _, f := range s.Files {
		path := s.Fset.Position(f.Pos()).Filename
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		found := &finder{source: s, file: f, text: string(text), name: filepath.Base(path), mutants: &mutants}
		for _, d := range f.Decls {
			found.in = ""
			if fn, ok := d.(*ast.FuncDecl); ok {
				found.in = fn.Name.Name
				if fn.Body != nil {
					found.visit(fn.Body, false)
				}
			} else if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.VAR {
				found.visit(d, false)
			}
		}
		files[path] = found.edited()
	}
	return mutants, files, nil
}

// edited returns the text of the file with all edits.
func (f *finder) edited() string {
	slices.Reverse(f.after)
	edits := slices.Concat(f.after, f.before) // at the same place, one ends before the next begins
	slices.SortStableFunc(edits, func(a, b edit) int { return a.at - b.at })
	var b strings.Builder
	done := 0
	for _, e := range edits {
		b.WriteString(f.text[done:e.at])
		b.WriteString(e.text)
		done = e.at
	}
	b.WriteString(f.text[done:])
	return b.String()
}

func (f *finder) offset(p token.Pos) int { return f.source.Fset.Position(p).Offset }

// raw returns the text of a node.
func (f *finder) raw(n ast.Node) string { return f.text[f.offset(n.Pos()):f.offset(n.End())] }

// add adds a mutant at a node, and returns its number.
func (f *finder) add(n ast.Node, at token.Pos, is string) int {
	pos := f.source.Fset.Position(at)
	m := &mutant{n: len(*f.mutants) + 1, file: f.name, line: pos.Line, col: pos.Column, in: f.in, was: f.raw(n), is: is}
	*f.mutants = append(*f.mutants, m)
	return m.n
}

// expression lets an expression of a type have other values.
func (f *finder) expression(e ast.Expr, at token.Pos, typ string, values ...string) {
	if len(values) == 0 {
		return
	}
	text := "func() " + typ + " { "
	for _, v := range values {
		text += fmt.Sprintf("if mutantOn(%d) { return %s }; ", f.add(e, at, v), v)
	}
	f.before = append(f.before, edit{f.offset(e.Pos()), text + "return "})
	f.after = append(f.after, edit{f.offset(e.End()), " }()"})
}

// statement lets a statement be another one, or be left out.
func (f *finder) statement(s ast.Stmt, others ...string) {
	text := ""
	for _, o := range others {
		text += fmt.Sprintf("if mutantOn(%d) { %s } else ", f.add(s, s.Pos(), o), o)
	}
	text += fmt.Sprintf("if !mutantOn(%d) { ", f.add(s, s.Pos(), ""))
	f.before = append(f.before, edit{f.offset(s.Pos()), text})
	f.after = append(f.after, edit{f.offset(s.End()), " }"})
}

// visit finds the mutants of a node and of what is in it. In a condition, what is neither a comparison nor made of
// other conditions is negated.
func (f *finder) visit(n ast.Node, condition bool) {
	switch n := n.(type) {
	case ast.Expr:
		f.visitExpr(n, condition)
	case *ast.IfStmt:
		f.visitAll(n.Init)
		f.visit(n.Cond, true)
		f.visitAll(n.Body, n.Else)
	case *ast.ForStmt:
		f.visitAll(n.Init)
		if n.Cond != nil {
			f.visit(n.Cond, true)
		}
		f.visitAll(n.Post, n.Body)
	case *ast.SwitchStmt:
		f.visitAll(n.Init)
		if n.Tag != nil {
			f.visit(n.Tag, false)
		}
		for _, s := range n.Body.List {
			for _, e := range s.(*ast.CaseClause).List {
				f.visit(e, n.Tag == nil)
			}
			f.visitList(s.(*ast.CaseClause).Body)
		}
	case *ast.TypeSwitchStmt:
		for _, s := range n.Body.List {
			f.visitList(s.(*ast.CaseClause).Body)
		}
	case *ast.CommClause:
		f.visitList(n.Body)
	case *ast.BlockStmt:
		f.visitList(n.List)
	case *ast.ReturnStmt:
		failed := f.returnsError(n)
		for _, e := range n.Results {
			if !failed || f.source.Info.Types[e].Value == nil {
				f.visit(e, false)
			}
		}
	case *ast.DeclStmt:
		if n.Decl.(*ast.GenDecl).Tok == token.VAR {
			f.visit(n.Decl, false)
		}
	default:
		f.visitParts(n)
	}
}

// returnsError reports whether a statement returns an error that may not be nil: what it returns beside means nothing.
func (f *finder) returnsError(s *ast.ReturnStmt) bool {
	if len(s.Results) < 2 {
		return false
	}
	last := f.source.Info.Types[s.Results[len(s.Results)-1]]
	return !last.IsNil() && last.Type.String() == "error"
}

// visitParts visits what a node is made of.
func (f *finder) visitParts(n ast.Node) {
	ast.Inspect(n, func(part ast.Node) bool {
		if part == nil || part == n {
			return part != nil
		}
		f.visit(part, false)
		return false
	})
}

// visitAll visits statements that cannot be left out.
func (f *finder) visitAll(statements ...ast.Stmt) {
	for _, s := range statements {
		if s != nil {
			f.visit(s, false)
		}
	}
}

// visitList visits statements that can be left out.
func (f *finder) visitList(list []ast.Stmt) {
	for _, s := range list {
		f.leaveOut(s)
		f.visit(s, false)
	}
}

// leaveOut leaves a simple statement out, or turns its operator round.
func (f *finder) leaveOut(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok {
			if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "panic" {
				return // it may be what ends the function
			}
		}
		f.statement(s)
	case *ast.AssignStmt:
		if s.Tok == token.ASSIGN {
			f.statement(s)
		} else if other, ok := assignments[s.Tok]; ok && f.isNumber(s.Lhs[0]) {
			f.statement(s, f.raw(s.Lhs[0])+" "+other.String()+" "+f.raw(s.Rhs[0]))
		} else if s.Tok != token.DEFINE {
			f.statement(s)
		}
	case *ast.IncDecStmt:
		other := map[token.Token]string{token.INC: "--", token.DEC: "++"}[s.Tok]
		f.statement(s, f.raw(s.X)+other)
	case *ast.BranchStmt:
		if s.Tok == token.BREAK || s.Tok == token.CONTINUE {
			f.statement(s)
		}
	case *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt:
		f.statement(s)
	}
}

func (f *finder) visitExpr(e ast.Expr, condition bool) {
	tv := f.source.Info.Types[e]
	if tv.IsType() {
		return
	}
	if tv.Value != nil {
		f.constant(e, tv)
		return
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		f.binary(e, tv.Type)
		logical := e.Op == token.LAND || e.Op == token.LOR
		f.visit(e.X, logical)
		f.visit(e.Y, logical)
	case *ast.ParenExpr:
		f.visit(e.X, condition)
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			f.expression(e, e.Pos(), "bool", f.raw(e.X))
			if _, ok := ast.Unparen(e.X).(*ast.BinaryExpr); !ok {
				f.visitParts(e.X)
				return
			}
		}
		f.visitParts(e)
	case *ast.KeyValueExpr:
		if _, ok := f.source.Info.Types[e.Key]; !ok || f.source.Info.Types[e.Key].Value != nil {
			f.visit(e.Value, false) // a field, or an index that has to be constant
			return
		}
		f.visitParts(e)
	case *ast.SelectorExpr:
		if condition {
			f.expression(e, e.Pos(), "bool", "!"+f.raw(e))
		}
		f.visit(e.X, false)
	case *ast.FuncLit:
		f.visit(e.Body, false)
	default:
		if condition {
			f.expression(e, e.Pos(), "bool", "!"+f.raw(e))
		}
		f.visitParts(e)
	}
}

var (
	comparisons = map[token.Token][]token.Token{
		token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
		token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
		token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
		token.LAND: {token.LOR}, token.LOR: {token.LAND},
	}
	arithmetic = map[token.Token]token.Token{
		token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
		token.AND: token.OR, token.OR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL,
	}
	assignments = map[token.Token]token.Token{
		token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
		token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN,
	}
)

// binary gives an operation other operators.
func (f *finder) binary(e *ast.BinaryExpr, typ types.Type) {
	others := comparisons[e.Op]
	name := "bool"
	if other, ok := arithmetic[e.Op]; ok && f.isNumber(e) {
		if name, ok = f.typeName(typ); ok {
			others = []token.Token{other}
		}
	}
	var values []string
	for _, op := range others {
		values = append(values, f.raw(e.X)+" "+op.String()+" "+f.raw(e.Y))
	}
	f.expression(e, e.OpPos, name, values...)
}

// constant lets a whole number be one more and one less, a duration twice as long and half, and true be false.
func (f *finder) constant(e ast.Expr, tv types.TypeAndValue) {
	basic, ok := types.Default(tv.Type).Underlying().(*types.Basic)
	if !ok {
		return
	}
	if named, ok := types.Unalias(tv.Type).(*types.Named); ok && named.Obj().Name() != "Duration" {
		return // of an enumeration
	}
	name, ok := f.typeName(types.Default(tv.Type))
	switch {
	case !ok:
	case basic.Info()&types.IsBoolean != 0:
		f.expression(e, e.Pos(), name, strconv.FormatBool(!constant.BoolVal(tv.Value)))
	case name == "time.Duration" && constant.Sign(tv.Value) == 0: // none, or the bound of a comparison with now
	case name == "time.Duration" && fits(constant.Shift(tv.Value, token.SHL, 1), basic):
		f.expression(e, e.Pos(), name, "2 * ("+f.raw(e)+")", "("+f.raw(e)+") / 2")
	case basic.Info()&types.IsInteger != 0:
		var values []string
		for _, op := range []token.Token{token.ADD, token.SUB} {
			if fits(constant.BinaryOp(tv.Value, op, constant.MakeInt64(1)), basic) {
				values = append(values, f.raw(e)+" "+op.String()+" 1")
			}
		}
		f.expression(e, e.Pos(), name, values...)
	}
}

// fits reports whether a whole number fits into a type.
func fits(v constant.Value, typ *types.Basic) bool {
	bits := int(8 * types.SizesFor("gc", "amd64").Sizeof(typ))
	if typ.Info()&types.IsUnsigned != 0 {
		return constant.Sign(v) >= 0 && constant.BitLen(v) <= bits
	}
	return constant.BitLen(v) < bits
}

func (f *finder) isNumber(e ast.Expr) bool {
	basic, ok := f.source.Info.Types[e].Type.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsNumeric != 0
}

// typeName returns how the file calls a type, and whether it can.
func (f *finder) typeName(typ types.Type) (string, bool) {
	ok := true
	name := types.TypeString(typ, func(p *types.Package) string {
		if p == f.source.Types {
			return ""
		}
		for _, i := range f.file.Imports {
			if path, err := strconv.Unquote(i.Path.Value); err == nil && path == p.Path() && i.Name == nil {
				return p.Name()
			}
		}
		ok = false
		return p.Name()
	})
	return name, ok
}

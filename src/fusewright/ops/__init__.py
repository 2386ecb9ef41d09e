"""Operations: the tables of rows, type promotion, and the functions that build nodes from them.

Elementwise operations are rows of `unary`, `binary` and `ternary`, collected by name in `elementwise`;
reductions are rows of `reductions`. `promotion` decides the types of operands and results. Imports core, sym
and ir only. Start with `elementwise`.
"""

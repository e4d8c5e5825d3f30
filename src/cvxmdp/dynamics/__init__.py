"""Everything the solvers need of a model, behind one small protocol."""

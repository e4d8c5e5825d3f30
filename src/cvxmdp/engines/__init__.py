"""The solvers.  They import no io, no report and no concrete dynamics."""

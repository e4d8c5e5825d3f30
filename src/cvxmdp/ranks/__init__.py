"""Models that live on several ranks of MPI."""

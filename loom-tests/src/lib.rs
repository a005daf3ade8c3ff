//! Models of alluvion's concurrent protocols, run under loom.

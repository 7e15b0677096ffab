"""Programs of other libraries on our products and solvers; each is imported when it is asked for."""

/* An empty library, which shows the cost of loading any library. */
int mallard_e2e_empty;

/* A library with nothing in it: what loading any library costs. */
int mallard_e2e_empty;

#include <vector>
int last(const std::vector<int> &all) { return all.back(); }

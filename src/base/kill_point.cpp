// The released program's kill_point, which does nothing. Test programs link tests/tools/faults.cpp before this library and get its kill_point
// instead.
#include "base/file.h"

namespace lockstep {
void kill_point(std::string_view) {}
}  // namespace lockstep

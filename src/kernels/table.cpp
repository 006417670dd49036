#include "kernels/table.h"

namespace lockstep {

namespace {
template <class V>
constexpr KernelTable table_of() {
  return {
#define LOCKSTEP_ENTRY(kernel, Arguments) &lockstep::kernel<V>,
      LOCKSTEP_KERNELS(LOCKSTEP_ENTRY)
#undef LOCKSTEP_ENTRY
  };
}
}  // namespace

KernelTable& kernel_table_to_plant_in(InstructionSet isa, bool traced) {
  static constinit KernelTable tables[2][3] = {{table_of<ScalarVec>(), table_of<Avx2Vec>(), table_of<Avx512Vec>()},
                                               {table_of<TracedVec<ScalarTiles>>(), table_of<TracedVec<Avx2Tiles>>(), table_of<TracedVec<Avx512Tiles>>()}};
  return tables[traced][static_cast<int>(isa)];
}

const KernelTable& kernel_table(InstructionSet isa, bool traced) { return kernel_table_to_plant_in(isa, traced); }

}  // namespace lockstep

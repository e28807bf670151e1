#include "common/base/result.h"
#include "common/collective/collective.h"

namespace foretoken {

std::unique_ptr<Collective> make_mpi_collective(int n_expected) {
  throw FatalError(ErrorCode::kConfig,
                   "tensor_parallel is " + std::to_string(n_expected) +
                       ", and this build has no MPI: install libopenmpi-dev and openmpi-bin and "
                       "configure again");
}

}  // namespace foretoken

#include "comm/nccl/api.h"
#include "zero/base/error.h"

namespace zero::comm::nccl {

std::shared_ptr<Api> load_nccl() {
  throw TopologyError(
      "several ranks on GPUs need NCCL, and this program was built without its header (nccl.h): "
      "install that and build again, or use one rank or device cpu");
}

}  // namespace zero::comm::nccl

// A libnccl.so.2 that moves nothing: each call succeeds at once, except the one that
// ZERO_NCCL_FAULT names as "CALL FIRST ERROR" or "CALL FIRST never": from its FIRST time on it
// returns the error, by number, or does not return. If ZERO_NCCL_COUNTS is set to a file, the
// process writes the number of calls of each name to it.
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

struct ncclComm {
  int rank, size;
};

namespace {

class Calls {
 public:
  Calls() {
    const char* const given = std::getenv("ZERO_NCCL_FAULT");
    std::istringstream text(given == nullptr ? "" : given);
    text >> name_ >> first_ >> outcome_;
  }
  ~Calls() {
    const char* const file = std::getenv("ZERO_NCCL_COUNTS");
    std::FILE* const out = file == nullptr ? nullptr : std::fopen(file, "w");
    if (out == nullptr) return;
    for (const auto& [name, count] : counts_) std::fprintf(out, "%s %d\n", name.c_str(), count);
    std::fclose(out);
  }
  ncclResult_t meet(const char* name) {
    {
      const std::lock_guard lock(mutex_);
      const int number = ++counts_[name];
      if (name_ != name || number < first_) return ncclSuccess;
    }
    if (outcome_ != "never") return static_cast<ncclResult_t>(std::atoi(outcome_.c_str()));
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> counts_;
  std::string name_, outcome_;
  int first_ = 0;
};

Calls& calls() {
  static Calls all;
  return all;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return calls().meet("ncclGetVersion");
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  return calls().meet("ncclGetUniqueId");
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId, int rank,
                                    ncclConfig_t*) {
  *made = new ncclComm{rank, size};
  return calls().meet("ncclCommInitRankConfig");
}
ncclResult_t ncclCommSplit(ncclComm_t parent, int, int, ncclComm_t* made, ncclConfig_t*) {
  *made = new ncclComm{*parent};
  return calls().meet("ncclCommSplit");
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = ncclSuccess;
  return calls().meet("ncclCommGetAsyncError");
}
const char* ncclGetErrorString(ncclResult_t) {
  return "as of NCCL";
}
const char* ncclGetLastError(ncclComm_t) {
  return "last words";
}
ncclResult_t ncclCommUserRank(ncclComm_t communicator, int* rank) {
  *rank = communicator->rank;
  return calls().meet("ncclCommUserRank");
}
ncclResult_t ncclCommCount(ncclComm_t communicator, int* size) {
  *size = communicator->size;
  return calls().meet("ncclCommCount");
}
// The handle stays valid, since others may still query it.
ncclResult_t ncclCommDestroy(ncclComm_t) {
  return calls().meet("ncclCommDestroy");
}
ncclResult_t ncclCommAbort(ncclComm_t) {
  return calls().meet("ncclCommAbort");
}
ncclResult_t ncclCommRegister(const ncclComm_t, void* data, size_t, void** registration) {
  *registration = data;
  return calls().meet("ncclCommRegister");
}
ncclResult_t ncclCommDeregister(const ncclComm_t, void*) {
  return calls().meet("ncclCommDeregister");
}
ncclResult_t ncclGroupStart() {
  return calls().meet("ncclGroupStart");
}
ncclResult_t ncclGroupEnd() {
  return calls().meet("ncclGroupEnd");
}
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return calls().meet("ncclSend");
}
ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return calls().meet("ncclRecv");
}
ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return calls().meet("ncclAllGather");
}
ncclResult_t ncclReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                               cudaStream_t) {
  return calls().meet("ncclReduceScatter");
}
ncclResult_t ncclReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
                        cudaStream_t) {
  return calls().meet("ncclReduce");
}
ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                           cudaStream_t) {
  return calls().meet("ncclAllReduce");
}
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
                           cudaStream_t) {
  return calls().meet("ncclBroadcast");
}

}  // extern "C"

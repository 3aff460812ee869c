// A host thread among the streams of a GPU: it reads and writes files, and updates in host memory,
// in an order that events give. It waits for the GPU on its own thread, polling a word in page-locked
// memory that the GPU writes (cuStreamWriteValue32); the GPU waits for it by cuStreamWaitValue32 on a
// counter in such memory that the thread raises, after a failure too. While it waits, the thread calls
// nothing of CUDA's. So neither the program's thread nor CUDA's callback thread
// ever waits. What threads wait for, on either side, has the device's time limit.
//
// CUDA does not see these waits, and streams may share a hardware queue, in which a wait holds back
// what was submitted behind it. This cannot deadlock: only the program's thread submits to the GPU,
// and it waits for an event only once that has been recorded; so all that a wait depends on,
// through whatever threads, was submitted before it. Its work must therefore not submit to the GPU.
#pragma once

#include <memory>
#include <string>

#include "zero/base/device_waits.h"
#include "zero/base/stream.h"

namespace zero::cuda {

// Of the current device. Throws TopologyError where the driver cannot wait for values.
std::unique_ptr<ExecutionStream> create_worker(const std::string& thread_name, DeviceWaits& waits);

}  // namespace zero::cuda

// A host thread ordered with the streams of a GPU by events: reads and writes files, and updates in
// host memory. The thread waits for the GPU by polling a word in page-locked memory that the GPU
// writes (cuStreamWriteValue32). The GPU waits for the thread with cuStreamWaitValue32 on a counter
// in page-locked memory, which the thread raises after a failure too. A waiting thread calls no
// CUDA function, so neither the program's thread nor CUDA's callback thread ever blocks. All waits
// on both sides have the device's time limit.
//
// CUDA cannot see these waits, and streams may share a hardware queue, so that a wait delays all
// work submitted after it. This cannot deadlock: only the program's thread submits to the GPU, and
// waits for an event only after the record. Therefore everything that a wait depends on, through
// any number of threads, was submitted earlier. The worker's work must not submit to the GPU.
#pragma once

#include <memory>
#include <string>

#include "zero/base/device_waits.h"
#include "zero/base/stream.h"

namespace zero::cuda {

// Creates a worker for the current device. Throws TopologyError if the driver cannot wait for
// values.
std::unique_ptr<ExecutionStream> create_worker(const std::string& thread_name, DeviceWaits& waits);

}  // namespace zero::cuda

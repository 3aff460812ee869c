// For programs that call MPI_Init themselves and own their communicators. The only public header
// that names MPI's types: who includes it links MPI::MPI_C.
//
// Collective over the communicator, which is duplicated. The Runtime must be gone before
// MPI_Finalize. With MPI below MPI_THREAD_MULTIPLE, communication runs on the calling thread.
#pragma once

// MPI's old C++ bindings would want a library of their own.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "zero/zero.h"

namespace zero {

// A Runtime over the ranks of a program's own communicator. Several may live side by side.
//
// With options.abort_job = false the library never aborts, exits or finalizes: errors are
// exceptions only. Let them leave the scope of the Runtime: its destructor then tells the other
// ranks of the group, which throw PeerFailed at their next wait. Catch outside of that scope.
Runtime adopt(MPI_Comm data_parallel, RuntimeOptions options = {});

// The same where the model is spread besides, over the ranks of another communicator (tensor
// parallelism, as in Megatron-LM): each rank of model_parallel declares its own part of a parameter
// that is split (ParamOptions::split) and all of the others. Gradient norm, clipping, the decision
// to skip a step, the loss scale and requests to stop span both groups; gradients are summed over
// data_parallel alone, as are losses averaged. Whoever writes a checkpoint is a data-parallel
// group: each has a directory of its own. On the CPU; MPI_COMM_NULL is no second group.
Runtime adopt(MPI_Comm data_parallel, MPI_Comm model_parallel, RuntimeOptions options = {});

}  // namespace zero

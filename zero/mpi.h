// For programs that call MPI_Init and own communicators. The only public header that names MPI's
// types: a program that includes this header links MPI::MPI_C.
//
// Collective over the communicator; the Runtime uses a duplicate. Destroy the Runtime before
// MPI_Finalize. If MPI provides less than MPI_THREAD_MULTIPLE, communication runs on the calling
// thread.
#pragma once

// MPI's old C++ bindings would need another library.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "zero/zero.h"

namespace zero {

// Creates a Runtime over the ranks of the program's own communicator. Several may exist at a time.
//
// With options.abort_job = false the library never aborts, exits or finalizes: errors are
// exceptions only. Let exceptions leave the scope of the Runtime: the destructor then notifies the
// peers of the group, which throw PeerFailed at the next wait. Catch outside of that scope.
Runtime adopt(MPI_Comm data_parallel, RuntimeOptions options = {});

// Creates a Runtime for a model that is also split over the ranks of a second communicator: tensor
// parallelism, see RuntimeOptions::tensor_ranks, which here is the size of model_parallel. The two
// communicators form a grid: rank d of data_parallel and rank t of model_parallel is one process,
// for each pair. Throws UsageError on all ranks otherwise. With MPI_COMM_NULL there is no second
// group.
Runtime adopt(MPI_Comm data_parallel, MPI_Comm model_parallel, RuntimeOptions options = {});

}  // namespace zero

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

}  // namespace zero

// For programs that start their ranks without MPI: what RuntimeOptions::rendezvous takes. A
// Messages of the program's own is needed if CPU ranks are on several hosts.
#pragma once

#include "zero/base/messages.h"
#include "zero/base/rendezvous.h"
#include "zero/zero.h"

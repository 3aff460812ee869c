// For programs that start ranks without MPI: the type of RuntimeOptions::rendezvous. A Messages of
// the program's own is needed if CPU ranks are on several hosts.
#pragma once

#include "zero/base/messages.h"
#include "zero/base/rendezvous.h"
#include "zero/zero.h"

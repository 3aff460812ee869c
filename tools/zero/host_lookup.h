// Lookup of a host name: it is this machine, another one, or unknown.
#pragma once

#include "tools/zero/hosts.h"

namespace zero::tool {

// A host counts as this machine by each of its names and addresses. Names that cannot be resolved
// here are a problem only if ranks are started by ssh: ssh's own configuration counts, but other
// agents and schedulers have names of their own.
HostPlace place_of(const std::string& name, bool by_ssh);

}  // namespace zero::tool

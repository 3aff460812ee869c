// Lookup of a host name: this machine, another, or unknown.
#pragma once

#include "tools/zero/hosts.h"

namespace zero::tool {

// A host counts as this machine by each name and address. Names that cannot be resolved here are a
// problem only if ranks are started by ssh: ssh's own configuration counts, but schedulers and
// other agents have names of their own.
HostPlace place_of(const std::string& name, bool by_ssh);

}  // namespace zero::tool

// What the name of a host means on this machine: this machine itself, another one, or nothing.
#pragma once

#include "tools/zero/hosts.h"

namespace zero::tool {

// A host counts as this machine by each of its names and addresses. Names that nothing here can
// resolve are a problem only if ranks are started by ssh: ssh's own configuration counts, and other
// agents and schedulers have names of their own.
HostPlace place_of(const std::string& name, bool by_ssh);

}  // namespace zero::tool

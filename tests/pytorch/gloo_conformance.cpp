// The conformance suite for ranks that send messages by torch's gloo, as a module for Python, since
// that makes the groups.
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <string>

#include "pytorch/store_rendezvous.h"
#include "tests/comm/world_conformance.h"

namespace {

void check(std::shared_ptr<zero::pytorch::StoreRendezvous> rendezvous,
           const std::string& transport) {
  zero::comm::WorldOptions options;
  options.rendezvous = std::move(rendezvous);
  options.transport = transport;
  options.time_limit = std::chrono::seconds(60);
  int argc = 0;
  char** argv = nullptr;
  const auto world = zero::comm::create_world(argc, argv, options);
  zero::comm::testing::check_world(*world);
}

}  // namespace

PYBIND11_MODULE(gloo_conformance, module) {
  module.def("check", check, pybind11::call_guard<pybind11::gil_scoped_release>());
}

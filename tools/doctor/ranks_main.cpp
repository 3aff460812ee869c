// The ranks of `zero doctor -n N`: they measure the links between them, and rank 0 prints the
// result as one line of JSON.
#include <cstdio>
#include <memory>

#include "comm/world.h"
#include "tools/doctor/links.h"
#include "zero/base/error.h"

int main(int argc, char** argv) {
  try {
    const auto world = zero::comm::create_world(argc, argv, {});
    const zero::doctor::Links links = zero::doctor::measure_links(*world);
    if (world->topology().rank == 0) std::printf("%s\n", zero::doctor::to_json(links).c_str());
    return 0;
  } catch (const zero::Error& error) {
    std::fprintf(stderr, "zero doctor: %s\n", error.what());
    return error.exit_code();
  }
}

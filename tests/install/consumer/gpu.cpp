// A program whose ranks compute on GPUs: it starts, or prints that this machine has none, never
// that the back end was not linked.
#include <zero/cuda.h>
#include <zero/zero.h>

#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
  try {
    zero::RuntimeOptions options;
    options.device = "cuda";
    const zero::Runtime runtime(argc, argv, options);
    return zero::native(runtime.stream()) != nullptr ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const zero::TopologyError& error) {
    const bool linked = std::string(error.what()).find("linked without") == std::string::npos;
    return linked ? EXIT_SUCCESS : EXIT_FAILURE;
  }
}

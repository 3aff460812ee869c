// A program with a fault: it reads a parameter through a pointer that outlives its scope. Built
// with AddressSanitizer, over a library without it; in strict mode the sanitizer must end it at
// that line.
#include <cstdio>
#include <cstdlib>

#include "zero/zero.h"

int main(int argc, char** argv) {
  ::setenv("ZERO_STRICT", "1", 1);
  return zero::run(argc, argv, [](zero::Runtime& runtime) {
    zero::ModelSpec model;
    for (const char* name : {"a", "b", "c"}) model.unit(name).param("w", {300});
    zero::Config config;
    config.batch.train_micro_batch_size_per_gpu = 1;
    zero::Engine engine(runtime, model, config);
    engine.initialize([](zero::ParamShard shard) {
      for (float& value : shard.values) value = 1;
    });
    for (zero::MicroStep micro : engine.micro_steps()) {
      const float* kept = nullptr;
      for (zero::Unit& unit : engine.units()) {
        const auto scope = unit.forward();
        if (kept == nullptr) kept = scope.value<float>("w");
        std::printf("%g", static_cast<double>(scope.value<float>("w")[7]));
      }
      micro.loss(0);
      std::fflush(stdout);
      std::printf("%g", static_cast<double>(kept[7]));
    }
  });
}

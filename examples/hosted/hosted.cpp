// Uses the library inside a program that owns MPI: the ranks form two groups by parity, and each
// group trains its own model at its own ZeRO stage.
// Run: mpirun -n 4 hosted
#include <zero/mpi.h>

#include <cstdio>
#include <vector>

// Learns the numbers 0, 1, 2, ... by gradient descent; samples are noisy copies of them.
void train(zero::Runtime& runtime, const char* stage) {
  constexpr std::int64_t size = 100;
  zero::ModelSpec model;
  model.unit("numbers").param("value", {size});
  zero::Engine engine(runtime, model,
                      zero::load_config("", {{"train_micro_batch_size_per_gpu", "1"},
                                             {"zero_optimization.stage", stage},
                                             {"optimizer.type", "SGD"},
                                             {"optimizer.params.lr", "0.3"},
                                             {"gradient_clipping", "0"}}));
  engine.initialize([](zero::ParamShard shard) {
    for (float& value : shard.values) value = 0;
  });
  zero::Unit& numbers = engine.unit("numbers");
  double loss = 0;
  while (engine.step_count() < 50) {
    for (zero::MicroStep micro : engine.micro_steps()) {
      std::vector<float> error(size);
      {
        auto scope = numbers.forward();
        const float noise = 0.01f * static_cast<float>(runtime.rank());
        for (std::int64_t i = 0; i < size; ++i)
          error[i] = scope.value<float>("value")[i] - static_cast<float>(i) - noise;
      }
      double half_square = 0;
      for (const float e : error) half_square += 0.5 * e * e;
      micro.loss(half_square);
      auto scope = numbers.backward();
      float* gradient = scope.grad<float>("value");
      for (std::int64_t i = 0; i < size; ++i) gradient[i] += error[i] * micro.loss_scale();
    }
    loss = engine.step().wait().loss;
  }
  if (runtime.is_root())
    std::printf("stage %s: %s; loss %.6f\n", stage, runtime.describe().c_str(), loss);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm group = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &group);
  int code = 0;
  try {
    zero::Runtime runtime = zero::adopt(group, {.abort_job = false, .catch_signals = false});
    train(runtime, rank % 2 == 0 ? "3" : "0");
  } catch (const zero::Error& error) {  // the library neither exits nor aborts
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    code = error.exit_code();
  }
  MPI_Comm_free(&group);
  MPI_Finalize();
  return code;
}

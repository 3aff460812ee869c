// A user's LibTorch program: one step of a sharded module.
#include <torch/torch.h>

#include <cstdio>

#include "pytorch/module.h"

int main(int argc, char** argv) {
  return zero::run(argc, argv, [&](zero::Runtime& runtime) {
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
    zero::pytorch::ShardedModule model(runtime, net.ptr(), zero::load_config(argv[1]));
    const auto batch = model.engine().batch();
    for (int micro = 0; micro < batch.accumulation; ++micro)
      model.backward(model.forward([&] {
                            return net->forward(torch::ones({batch.micro, 4}));
                          })
                         .mean());
    const zero::StepResult result = model.step().wait();
    if (runtime.is_root()) std::printf("loss %.4f\n", result.loss);
  });
}

// llm.c's loop: pointers per layer come from the scope; the kernels are unchanged and add into
// gradients.
#include <cstdio>
#include <optional>
#include <string>

#include <zero/cuda.h>

using floatX = __nv_bfloat16;

struct GPT2 {
  int layers;
  std::int64_t channels, padded_vocab, context;
};

// The user's kernels and launchers.
__global__ void qkv_forward(floatX* out, const floatX* weight);
__global__ void qkv_backward(floatX* grad, const floatX* weight);
void fused_residual_norm(const floatX* next_ln1w, cudaStream_t);
float* fused_classifier(const floatX* lnfw, const floatX* wte, floatX* dwte, floatX* dlnfw,
                        const float* loss_scale, cudaStream_t);

std::string layer(int l) {
  return "h" + std::to_string(l);
}

zero::ModelSpec describe(const GPT2& gpt) {
  zero::ModelSpec model;
  model.unit("encoder")
      .param("wte", {gpt.padded_vocab, gpt.channels})
      .param("wpe", {gpt.context, gpt.channels});
  for (int l = 0; l < gpt.layers; ++l) {
    zero::UnitSpec& unit = model.unit(layer(l))
                               .param("ln1w", {gpt.channels}, {.decay = false})
                               .param("qkvw", {3 * gpt.channels, gpt.channels});
    if (l + 1 < gpt.layers)
      unit.uses(layer(l + 1) + ".ln1w");  // the kernel also reads the next block's norm
  }
  model.unit("classifier")
      .param("lnfw", {gpt.channels}, {.decay = false})
      .uses("encoder.wte")
      .fused();
  return model;
}

void forward(const GPT2& gpt, zero::Engine& engine, cudaStream_t stream) {
  for (int l = 0; l < gpt.layers; ++l) {
    zero::ForwardScope scope = engine.unit(layer(l)).forward();
    qkv_forward<<<1, 32, 0, stream>>>(nullptr, scope.value<floatX>("qkvw"));
    if (l + 1 < gpt.layers)
      fused_residual_norm(scope.value<floatX>(layer(l + 1) + ".ln1w"), stream);
  }
}

void backward(const GPT2& gpt, zero::Engine& engine, zero::MicroStep micro, cudaStream_t stream) {
  {
    zero::BackwardScope scope = engine.unit("classifier").backward();
    micro.loss(fused_classifier(scope.value<floatX>("lnfw"), scope.value<floatX>("encoder.wte"),
                                scope.grad<floatX>("encoder.wte"), scope.grad<floatX>("lnfw"),
                                micro.device_loss_scale(), stream));
  }
  for (int l = gpt.layers - 1; l >= 0; --l) {
    zero::BackwardScope scope = engine.unit(layer(l)).backward();
    qkv_backward<<<1, 32, 0, stream>>>(scope.grad<floatX>("qkvw"), scope.value<floatX>("qkvw"));
  }
  zero::BackwardScope scope = engine.unit("encoder").backward();
  scope.grad<floatX>("wte");
}

int main(int argc, char** argv) {
  return zero::run(
      argc, argv,
      [](zero::Runtime& runtime) {
        const GPT2 gpt{12, 768, 50304, 1024};
        const cudaStream_t stream = zero::native(runtime.stream());
        zero::Engine engine(runtime, describe(gpt), zero::load_config("ds_config.json"));
        engine.initialize([](zero::ParamShard) {});

        std::optional<zero::StepTicket> previous;
        for (int step = 0; step < 10; ++step) {
          for (zero::MicroStep micro : engine.micro_steps()) {
            forward(gpt, engine, stream);
            backward(gpt, engine, micro, stream);
          }
          const zero::StepTicket ticket = engine.step({.learning_rate = 3e-4, .inspect = {}});
          if (previous)
            std::printf("%f\n", previous->wait().loss);  // the step before, so nothing stalls
          previous = ticket;
        }
      },
      {.device = "cuda"});
}

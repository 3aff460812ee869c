// Rates of train_gpt's kernels on the cores of one rank, while all ranks of the node run the same
// kernels.
#pragma once

namespace zero {
class ThreadPool;
}

namespace zero::calibrate {

// Operations and bytes per second of this rank. A product of m x k and k x n takes
// 2 m k n / (flops * share(m) * share(k) * share(n)) seconds, with share(s) = s / (s + ramp).
struct KernelRates {
  double flops32 = 0, flops16 = 0;
  double ramp = 0;             // of products in 32 bits
  double attention_flops = 0;  // fp32, forward
  double stream_rate = 0;      // bytes read and written by copies of memory
};

// Takes some seconds.
KernelRates measure_kernels(ThreadPool& pool);

// Returns the ramp and the rate of the formula above, from the measured rates of two products of
// cubes with these sides; small < large.
struct ProductModel {
  double flops = 0, ramp = 0;
};
ProductModel model_of(double small, double small_rate, double large, double large_rate);

}  // namespace zero::calibrate

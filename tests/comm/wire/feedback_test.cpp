// Error feedback as defined by LoCo and by DeepSpeed 0.19.7, the last version that has it.
#include <doctest/doctest.h>

#include <algorithm>

#include "comm/wire/layout.h"
#include "tests/comm/wire/vectors.h"
#include "zero/base/error.h"

namespace zero::comm::wire::testing {
namespace {

// One vector over several steps.
class Fed {
 public:
  Fed(const Codec& codec, std::size_t count)
      : codec_(codec),
        count_(static_cast<std::int64_t>(count)),
        residue_(static_cast<std::size_t>(residue_bytes(codec, count_))) {}

  // Returns the decoded gradient of a step.
  std::vector<float> step(const std::vector<float>& gradient, float beta, bool reset = false,
                          float loss_scale = 1) {
    Bytes sent(static_cast<std::size_t>(encoded_bytes(codec_, count_, DType::fp32)));
    const Residue residue = residue_at(codec_, residue_.data(), count_);
    const Feedback feedback{residue, residue, beta, reset, &loss_scale};
    encode(codec_, {gradient.data(), DType::fp32, count_, &feedback}, sent.data());
    return decoded(codec_, sent, count_);
  }
  const Bytes& bytes() const { return residue_; }
  std::vector<float> residue() const {
    return decoded(Codec(Format::int8, codec_.block), residue_, count_);
  }

 private:
  Codec codec_;
  std::int64_t count_;
  Bytes residue_;
};

// Returns the largest magnitude in the block of element i.
float maximum_near(const std::vector<float>& values, std::size_t i, std::size_t block) {
  const std::size_t begin = i / block * block, end = std::min(begin + block, values.size());
  float maximum = 0;
  for (std::size_t k = begin; k < end; ++k) maximum = std::max(maximum, std::fabs(values[k]));
  return maximum;
}

}  // namespace

TEST_CASE("error feedback: a worked example") {
  // With 7 in the block the codes of int4 are integers: 2.25 is sent as 2 until the residue, half
  // of it new in each step, makes it a 3.
  Fed fed(Codec(Format::int4, 32), 32);
  std::vector<float> gradient(32);
  gradient[0] = 7;
  gradient[5] = 2.25f;
  const float sent[] = {2, 2, 2, 3}, left[] = {0.125f, 0.25f, 0.375f, 0};
  for (int step = 0; step < 4; ++step) {
    CAPTURE(step);
    CHECK(fed.step(gradient, 0.5f)[5] == doctest::Approx(sent[step]).epsilon(1e-6));
    CHECK(std::fabs(fed.residue()[5] - left[step]) < 1e-6f);
  }
}

TEST_CASE("error feedback: the residue is a moving average of the losses, in int8") {
  constexpr double beta = 0.8;
  for (const Format format : block_formats) {
    CAPTURE(name_of(format));
    const Codec codec(format, 64);
    Fed fed(codec, 1000);
    std::vector<float> residue(1000);
    for (unsigned step = 0; step < 5; ++step) {
      const std::vector<float> gradient = random_floats(1000, Numbers::usual, 40 + step);
      std::vector<float> wanted(1000), expected(1000);
      for (std::size_t i = 0; i < 1000; ++i) wanted[i] = gradient[i] + residue[i];
      const std::vector<float> sent = fed.step(gradient, static_cast<float>(beta));
      CHECK(same_bits(sent, through(codec, wanted)));
      for (std::size_t i = 0; i < 1000; ++i)
        expected[i] = static_cast<float>(beta * static_cast<double>(residue[i]) +
                                         (1 - beta) * static_cast<double>(wanted[i] - sent[i]));
      residue = fed.residue();
      int wrong = 0;
      for (std::size_t i = 0; i < 1000; ++i)
        wrong += std::fabs(residue[i] - expected[i]) >
                 maximum_near(expected, i, static_cast<std::size_t>(codec.block)) * 0.501f / 127;
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("error feedback: values that are too small for a code are sent in the mean") {
  const Codec codec(Format::int4, 32);
  Fed fed(codec, 32);
  std::vector<float> gradient(32, 0.01f);
  gradient[0] = 1;
  CHECK(through(codec, gradient)[9] == 0);
  double sum = 0;
  for (int step = 0; step < 2000; ++step) sum += static_cast<double>(fed.step(gradient, 0.8f)[9]);
  CHECK(sum / 2000 == doctest::Approx(0.01).epsilon(0.05));
}

TEST_CASE("error feedback: a reset takes the residue for zero") {
  const Codec codec(Format::int8, 64);
  const std::vector<float> gradient = random_floats(200, Numbers::usual, 6);
  Fed fed(codec, 200), fresh(codec, 200);
  fed.step(random_floats(200, Numbers::usual, 5), 0.8f);
  CHECK(same_bits(fed.step(gradient, 0.8f, true), through(codec, gradient)));
  fresh.step(gradient, 0.8f);
  CHECK(same_bits(fed.residue(), fresh.residue()));
}

TEST_CASE("error feedback: blocks that are not finite leave their residues alone") {
  const Codec codec(Format::int4, 64);
  Fed fed(codec, 128);
  std::vector<float> gradient = random_floats(128, Numbers::usual, 7);
  fed.step(gradient, 0.8f);
  const std::vector<float> before = fed.residue();
  gradient[70] = std::numeric_limits<float>::infinity();
  const std::vector<float> sent = fed.step(gradient, 0.8f), after = fed.residue();
  CHECK(std::isnan(sent[100]));
  CHECK(std::isfinite(sent[10]));
  CHECK(std::equal(before.begin() + 64, before.end(), after.begin() + 64));
  CHECK(!std::equal(before.begin(), before.begin() + 64, after.begin()));
}

TEST_CASE("error feedback: residues do not depend on the loss scale, which may change") {
  for (const Format format : block_formats) {
    CAPTURE(name_of(format));
    const Codec codec(format, 64);
    Fed plain(codec, 500), scaled(codec, 500);
    for (unsigned step = 0; step < 6; ++step) {
      const float scale = step < 3 ? 1024.0f : 256.0f;
      const std::vector<float> gradient = random_floats(500, Numbers::usual, 60 + step);
      std::vector<float> larger = gradient;
      for (float& value : larger) value *= scale;
      std::vector<float> sent = scaled.step(larger, 0.8f, false, scale);
      for (float& value : sent) value /= scale;
      CHECK(same_bits(sent, plain.step(gradient, 0.8f)));
      CHECK(scaled.residue() == plain.residue());
    }
  }
}

TEST_CASE("error feedback: the next residue may lie elsewhere, and the one before stays") {
  const Codec codec(Format::int4, 64);
  std::vector<float> gradient = random_floats(200, Numbers::usual, 8);
  Fed fed(codec, 200);
  fed.step(gradient, 0.8f);
  gradient[70] = std::numeric_limits<float>::infinity();
  for (const bool reset : {false, true}) {
    Fed in_place = fed;
    in_place.step(gradient, 0.8f, reset);
    Bytes before = fed.bytes(), after(before.size(), 0xee);
    Bytes sent(static_cast<std::size_t>(encoded_bytes(codec, 200, DType::fp32)));
    const Feedback feedback{.before = residue_at(codec, before.data(), 200),
                            .after = residue_at(codec, after.data(), 200),
                            .reset = reset};
    encode(codec, {gradient.data(), DType::fp32, 200, &feedback}, sent.data());
    CHECK(before == fed.bytes());
    const Codec int8(Format::int8, codec.block);
    CHECK(same_bits(decoded(int8, after, 200), in_place.residue()));
  }
}

TEST_CASE("error feedback: formats without blocks are refused") {
  for (const Format format : {Format::none, Format::bf16}) {
    float gradient = 1;
    alignas(16) unsigned char bytes[32] = {};
    const Feedback feedback;
    CHECK_THROWS_AS(encode(Codec(format), {&gradient, DType::fp32, 1, &feedback}, bytes),
                    UsageError);
  }
}

}  // namespace zero::comm::wire::testing

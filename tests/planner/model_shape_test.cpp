#include "tools/planner/model_shape.h"

#include <doctest/doctest.h>

#include "zero/base/error.h"
#include "zero/plan/model.h"

using namespace zero::planner;

TEST_CASE("the trainer's models have the work that its own count of operations says") {
  const ModelShape shape = load_shape("gpt2");
  CHECK(shape.parameters == 124'439'808);
  double products = 0;
  for (const UnitWork& unit : shape.work)
    for (const Product& product : unit.products)
      products += 6.0 * static_cast<double>(product.in) * static_cast<double>(product.out);
  const double attention = 6.0 * 12 * 768 * 1024;
  CHECK(products + attention == doctest::Approx(shape.flops_per_token(1024)).epsilon(0.01));
  CHECK(shape.work.size() == shape.spec.declared().units.size());
}

TEST_CASE("a number of parameters gives a decoder of that size") {
  for (const DecoderSize& size : {DecoderSize{7'000'000'000, 32, 4096}, DecoderSize{124'000'000},
                                  DecoderSize{70'000'000'000, 80, 8192}}) {
    const ModelShape shape = decoder_shape(size);
    CHECK(static_cast<double>(shape.parameters) ==
          doctest::Approx(static_cast<double>(size.parameters)).epsilon(0.001));
  }
  CHECK_THROWS_WITH_AS(decoder_shape({1'000'000, 32, 4096}), doctest::Contains("--layers 32"),
                       zero::ConfigError);
}

TEST_CASE("names and shapes of any program give units by their numbers") {
  const ModelShape shape = shape_of_tensors("ours", {{"head.weight", {1000, 64}},
                                                     {"layers.10.attn.q_proj.weight", {64, 64}},
                                                     {"layers.2.attn.q_proj.weight", {64, 64}},
                                                     {"layers.2.mlp.weight", {256, 64}},
                                                     {"embed_tokens.weight", {1000, 64}}});
  const auto& units = shape.spec.declared().units;
  REQUIRE(units.size() == 4);
  CHECK(units[0].name == "first");
  CHECK(units[1].name == "layers.2");
  CHECK(units[2].name == "layers.10");
  CHECK(units[3].name == "last");
  CHECK(shape.hidden == 64);
  CHECK(shape.work[1].products.size() == 2);
  CHECK(shape.parameters == 2 * 64'000 + 2 * 64 * 64 + 256 * 64);
}

TEST_CASE("counts are read with their suffixes, and refused by the name of the option") {
  CHECK(parse_count("--params", "7B") == 7'000'000'000);
  CHECK(parse_count("--params", "7e9") == 7'000'000'000);
  CHECK(parse_count("--params", "124M") == 124'000'000);
  for (const char* text : {"", "7X", "-1", "0", "nan", "1e30"})
    CHECK_THROWS_WITH_AS(parse_count("--params", text), doctest::Contains("--params"),
                         zero::ConfigError);
}

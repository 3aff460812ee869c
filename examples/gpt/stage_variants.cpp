#include "examples/gpt/stage_variants.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "zero/zero.h"

namespace gpt {
namespace {

struct Item {
  const char* text;
  const char* name;
  const char* stage;
  const char* reshard_after_forward;
};

constexpr std::array<Item, 5> items = {{{"0", "stage 0", "0", "true"},
                                        {"1", "stage 1", "1", "true"},
                                        {"2", "stage 2", "2", "true"},
                                        {"3", "stage 3", "3", "true"},
                                        {"grad_op", "grad_op", "3", "false"}}};

[[noreturn]] void refuse(const std::string& list, const std::string& problem) {
  throw zero::ConfigError("--compare-stages " + list + ": " + problem +
                          "; expected two or more of 0, 1, 2, 3 and grad_op (stage 3 without "
                          "resharding after forward), with commas between");
}

}  // namespace

std::vector<StageVariant> parse_stage_list(const std::string& list) {
  std::vector<StageVariant> variants;
  std::istringstream stream(list);
  for (std::string text; std::getline(stream, text, ',');) {
    const auto item = std::find_if(items.begin(), items.end(),
                                   [&](const Item& candidate) { return text == candidate.text; });
    if (item == items.end()) refuse(list, "\"" + text + "\" is no stage");
    for (const StageVariant& before : variants)
      if (before.name == item->name) refuse(list, text + " is there twice");
    variants.push_back({item->name,
                        {{"zero_optimization.stage", item->stage},
                         {"zero_core.reshard_after_forward", item->reshard_after_forward}}});
  }
  if (variants.size() < 2) refuse(list, "nothing to compare");
  return variants;
}

}  // namespace gpt

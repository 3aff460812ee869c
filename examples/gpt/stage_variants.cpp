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
  bool reshards = true;
  const char* offload = "none";  // where all rests that can
};

constexpr std::array<Item, 11> items = {{{"0", "stage 0", "0"},
                                         {"1", "stage 1", "1"},
                                         {"2", "stage 2", "2"},
                                         {"3", "stage 3", "3"},
                                         {"grad_op", "grad_op", "3", false},
                                         {"1+cpu", "stage 1 + cpu", "1", true, "cpu"},
                                         {"2+cpu", "stage 2 + cpu", "2", true, "cpu"},
                                         {"3+cpu", "stage 3 + cpu", "3", true, "cpu"},
                                         {"1+nvme", "stage 1 + nvme", "1", true, "nvme"},
                                         {"2+nvme", "stage 2 + nvme", "2", true, "nvme"},
                                         {"3+nvme", "stage 3 + nvme", "3", true, "nvme"}}};

[[noreturn]] void refuse(const std::string& list, const std::string& problem) {
  throw zero::ConfigError("--compare-stages " + list + ": " + problem +
                          "; expected two or more of 0, 1, 2, 3, grad_op (stage 3 without "
                          "resharding after forward), 1+cpu, 2+cpu and 3+cpu (offload to host "
                          "memory, of GPU ranks), 1+nvme, 2+nvme and 3+nvme (offload to a file in "
                          "nvme_path), with commas between");
}

// A list that offloads compares it with none; else that is for the config to say.
void set_offload(StageVariant& variant, const Item& item) {
  const std::string section = "zero_optimization.offload_", device = item.offload;
  for (const char* part : {"optimizer", "param"})
    variant.overrides[section + part + ".device"] = device;
  if (device == "nvme") variant.overrides[section + "param.max_in_cpu"] = "0";
  if (device == "cpu") variant.overrides[section + "optimizer.ratio"] = "1";
  variant.of_gpu = device == "cpu";
}

}  // namespace

std::vector<StageVariant> parse_stage_list(const std::string& list) {
  const bool offloads = list.find('+') != std::string::npos;
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
                         {"zero_core.reshard_after_forward", item->reshards ? "true" : "false"}}});
    if (offloads) set_offload(variants.back(), *item);
  }
  if (variants.size() < 2) refuse(list, "nothing to compare");
  return variants;
}

}  // namespace gpt

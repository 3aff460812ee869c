#include "tools/report/stage_variants.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "zero/base/error.h"

namespace zero::report {

namespace {

enum class Groups { none, shards, second_copies };

struct Item {
  const char* text;
  const char* name;
  const char* stage;
  bool reshards = true;
  const char* offload = "none";  // device of all state that can be offloaded
  Groups groups = Groups::none;
  bool optimizer_over_all_ranks = false;
  bool quantized_weights = false, quantized_gradients = false;

  bool encoded() const { return quantized_weights || quantized_gradients; }
};

constexpr std::array<Item, 18> items = {
    {{"0", "stage 0", "0"},
     {"1", "stage 1", "1"},
     {"2", "stage 2", "2"},
     {"3", "stage 3", "3"},
     {"grad_op", "grad_op", "3", false},
     {"1+cpu", "stage 1 + cpu", "1", true, "cpu"},
     {"2+cpu", "stage 2 + cpu", "2", true, "cpu"},
     {"3+cpu", "stage 3 + cpu", "3", true, "cpu"},
     {"1+nvme", "stage 1 + nvme", "1", true, "nvme"},
     {"2+nvme", "stage 2 + nvme", "2", true, "nvme"},
     {"3+nvme", "stage 3 + nvme", "3", true, "nvme"},
     {"hybrid", "hybrid", "3", true, "none", Groups::shards},
     {"hfsdp", "hfsdp", "3", true, "none", Groups::shards, true},
     {"3+hpz", "stage 3 + hpz", "3", true, "none", Groups::second_copies},
     {"3+qwz", "stage 3 + qwz", "3", true, "none", Groups::none, false, true},
     {"3+qgz", "stage 3 + qgz", "3", true, "none", Groups::none, false, false, true},
     {"3+qwz+qgz", "stage 3 + qwz + qgz", "3", true, "none", Groups::none, false, true, true},
     {"3+hpz+qwz+qgz", "stage 3 + hpz + qwz + qgz", "3", true, "none", Groups::second_copies, false,
      true, true}}};

// The text of a list, and the name of the option.
struct ListText {
  const std::string& text;
  const std::string& given_as;
  bool several = true;
};

[[noreturn]] void refuse(const ListText& list, const std::string& problem) {
  throw ConfigError(
      list.given_as + " " + list.text + ": " + problem + "; expected " +
      (list.several ? "two or more" : "one") +
      " of 0, 1, 2, 3, grad_op (stage 3 without resharding after forward), "
      "hybrid/S and hfsdp/S (stage 3 in groups of S ranks, hfsdp with optimizer states sharded "
      "over all), 3+hpz/S (with a second copy in groups of S ranks), 3+qwz, 3+qgz and 3+qwz+qgz "
      "(int8 gathers, int4 reductions), 3+hpz+qwz+qgz/S (ZeRO++ in full), 1+cpu, 2+cpu and 3+cpu "
      "(offload to host memory, of GPU ranks), 1+nvme, 2+nvme and 3+nvme (offload to a file in "
      "nvme_path), each also in N stages of a pipeline with /pN after it, with commas between");
}

// An item as given, the ranks of its groups, and the stages of its pipeline.
struct Given {
  const Item* item;
  std::string group, stages;
};

Given find_item(const ListText& list, std::string text) {
  const std::string stages = take_stages(text);
  const std::size_t slash = std::min(text.find('/'), text.size());
  const std::string name = text.substr(0, slash),
                    group = text.substr(std::min(slash + 1, text.size()));
  const auto* item =
      std::ranges::find_if(items, [&](const Item& candidate) { return name == candidate.text; });
  const bool grouped = item != items.end() && item->groups != Groups::none;
  const bool number = !group.empty() && group.size() < 7 &&
                      group.find_first_not_of("0123456789") == std::string::npos && group[0] != '0';
  if (item == items.end() || (slash < text.size() && !number && !grouped))
    refuse(list, "\"" + text + "\" is no stage");
  if (number != grouped)
    refuse(list, number ? name + " has no groups"
                        : text + " lacks the ranks of a group, as in " + name + "/2");
  return {item, group, stages};
}

void set_groups(StageVariant& variant, const Given& given) {
  if (given.item->groups == Groups::none) return;
  variant.name += "/" + given.group;
  if (given.item->groups == Groups::second_copies) {
    variant.overrides["zero_optimization.zero_hpz_partition_size"] = given.group;
    return;
  }
  variant.overrides["zero_core.shard_group_size"] = given.group;
  variant.overrides["zero_core.optimizer_over_all_ranks"] =
      given.item->optimizer_over_all_ranks ? "true" : "false";
}

// Makes all variants sum in the same groups first, because otherwise the bits would differ.
void sum_in_groups(const ListText& list, std::vector<StageVariant>& variants) {
  const std::string key = "zero_core.shard_group_size";
  std::string group;
  for (const StageVariant& variant : variants) {
    const auto own = variant.overrides.find(key);
    if (own == variant.overrides.end()) continue;
    if (!group.empty() && own->second != group)
      refuse(list, "groups of " + group + " and of " + own->second +
                       " ranks sum in another order, so that their bits differ");
    group = own->second;
  }
  if (group.empty()) return;
  for (StageVariant& variant : variants) {
    variant.overrides["zero_core.reduce_group_size"] = group;
    variant.overrides["zero_core.inner_group_size"] = "null";
  }
}

// Sets the stages of every item if any item has some; otherwise the config decides.
void set_stages(StageVariant& variant, const std::string& stages) {
  variant.overrides[stages_key] = stages.empty() ? "1" : stages;
  if (!stages.empty()) variant.name += stages_mark + stages;
}

// Sets the offload device of every item if any item offloads, since the list compares offload with
// none; otherwise the config decides.
void set_offload(StageVariant& variant, const Item& item) {
  const std::string section = "zero_optimization.offload_", device = item.offload;
  for (const char* part : {"optimizer", "param"})
    variant.overrides[section + part + ".device"] = device;
  if (device == "nvme") variant.overrides[section + "param.max_in_cpu"] = "0";
  if (device == "cpu") variant.overrides[section + "optimizer.ratio"] = "1";
  variant.of_gpu = device == "cpu";
}

// Sets the formats of every item if any item encodes, since the list compares encoded with plain
// elements; otherwise the config decides.
void set_formats(StageVariant& variant, const Item& item) {
  const std::string section = "zero_optimization.";
  const auto text = [](bool on) { return on ? "true" : "false"; };
  variant.overrides[section + "zero_quantized_weights"] = text(item.quantized_weights);
  variant.overrides[section + "zero_quantized_gradients"] = text(item.quantized_gradients);
  variant.encoded = item.encoded();
  // The limit enables the measurement of errors, and no error is as large.
  if (item.encoded()) variant.overrides["zero_core.wire.max_error"] = "1000";
}

StageVariant variant_of(const Given& given) {
  const Item& item = *given.item;
  StageVariant variant{item.name,
                       {{"zero_optimization.stage", item.stage},
                        {"zero_core.reshard_after_forward", item.reshards ? "true" : "false"}}};
  set_groups(variant, given);
  return variant;
}

}  // namespace

bool is_number_of_stages(const std::string& text) {
  return !text.empty() && text.size() < 6 && text[0] != '0' &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

std::string take_stages(std::string& item) {
  const std::size_t mark = item.rfind(stages_mark);
  if (mark == std::string::npos || !is_number_of_stages(item.substr(mark + 2))) return "";
  const std::string stages = item.substr(mark + 2);
  item.erase(mark);
  return stages;
}

StageVariant stage_variant(const std::string& item, const std::string& given_as) {
  const Given given = find_item({item, given_as, false}, item);
  StageVariant variant = variant_of(given);
  set_offload(variant, *given.item);
  set_formats(variant, *given.item);
  return variant;
}

std::vector<StageVariant> parse_stage_list(const std::string& text, const std::string& given_as) {
  const ListText list{text, given_as};
  std::vector<Given> given;
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) given.push_back(find_item(list, item));
  const bool offloads = std::ranges::any_of(
      given, [](const Given& each) { return each.item->offload != std::string("none"); });
  const bool cuts =
      std::ranges::any_of(given, [](const Given& each) { return !each.stages.empty(); });
  const bool encodes =
      std::ranges::any_of(given, [](const Given& each) { return each.item->encoded(); });
  std::vector<StageVariant> variants;
  for (const Given& each : given) {
    StageVariant variant = variant_of(each);
    if (offloads) set_offload(variant, *each.item);
    if (encodes) set_formats(variant, *each.item);
    if (cuts) set_stages(variant, each.stages);
    for (const StageVariant& before : variants)
      if (before.name == variant.name) refuse(list, variant.name + " is there twice");
    variants.push_back(std::move(variant));
  }
  if (variants.size() < 2) refuse(list, "nothing to compare");
  sum_in_groups(list, variants);
  return variants;
}

}  // namespace zero::report

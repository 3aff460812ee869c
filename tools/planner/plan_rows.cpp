#include "tools/planner/plan_rows.h"

#include <algorithm>
#include <sstream>

#include "comm/wire/codec.h"
#include "tools/report/stage_variants.h"
#include "zero/base/error.h"

namespace zero::planner {
namespace {

const std::string stage_3 = "3+";

// Parses "3+gather=int8", stage 3 with one wire format. Returns false for other items.
bool read_format(const std::string& item, PlanRow& row) {
  for (const char* direction : {"gather", "reduce"}) {
    const std::string begin = stage_3 + direction + "=";
    if (!item.starts_with(begin)) continue;
    const std::string format = item.substr(begin.size());
    const auto& names = comm::wire::format_names;
    if (std::ranges::count(names, format) == 0 || format == "none")
      throw ConfigError("--rows " + item + ": expected one of bf16, fp8_e4m3, mxfp8, int8, int4");
    row.overrides["zero_core.wire." + std::string(direction)] = format;
    row.exact = false;
    return true;
  }
  return false;
}

// Returns the row in this number of stages.
PlanRow in_stages(PlanRow row, const std::string& stages) {
  if (stages != "1") row.name += report::stages_mark + stages;
  row.overrides[report::stages_key] = stages;
  return row;
}

PlanRow row_of(std::string item) {
  if (const std::string stages = report::take_stages(item); !stages.empty())
    return in_stages(row_of(item), stages);
  PlanRow row{item};
  if (item == "config") return row;
  const bool format = read_format(item, row);
  const report::StageVariant variant = report::stage_variant(format ? "3" : item, "--rows");
  for (const auto& [path, value] : variant.overrides) row.overrides.try_emplace(path, value);
  row.exact = row.exact && !variant.encoded;
  row.overrides.erase("zero_core.wire.max_error");  // only comparisons of runs measure errors
  return row;
}

}  // namespace

std::vector<PlanRow> parse_rows(const std::string& list) {
  std::vector<PlanRow> rows;
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    if (std::ranges::count(rows, item, &PlanRow::name) > 0)
      throw ConfigError("--rows " + list + ": " + item + " is there twice");
    rows.push_back(row_of(item));
  }
  if (rows.empty()) throw ConfigError("--rows is empty; expected a list such as 0,1,2,3");
  return rows;
}

std::vector<PlanRow> with_stages(const std::vector<PlanRow>& rows, const std::string& list) {
  std::vector<PlanRow> result;
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    if (!report::is_number_of_stages(item))
      throw ConfigError("--pipeline-stages " + list +
                        ": expected numbers of stages with commas between, such as 1,2,4");
    for (const PlanRow& row : rows) {
      if (row.overrides.contains(report::stages_key))
        throw ConfigError("--rows has " + row.name + ": leave --pipeline-stages out");
      result.push_back(in_stages(row, item));
    }
  }
  return result;
}

std::vector<PlanRow> all_rows(const Cluster& cluster) {
  std::string list = "0,1,2,3,grad_op";
  const int node = cluster.per_node;
  if (node > 1 && node < cluster.ranks && cluster.ranks % node == 0) {
    const std::string group = "/" + std::to_string(node);
    for (const char* item : {"hybrid", "hfsdp", "3+hpz", "3+hpz+qwz+qgz"})
      list += "," + (item + group);
  }
  list += ",3+qwz,3+qgz,3+qwz+qgz";
  for (const char* direction : {"gather", "reduce"})
    for (const char* format : comm::wire::format_names)
      if (format != std::string("none"))
        list += std::string(",") + stage_3 + direction + "=" + format;
  if (cluster.device.gpu) list += ",1+cpu,2+cpu,3+cpu";
  list += ",1+nvme,2+nvme,3+nvme";
  std::vector<PlanRow> rows = parse_rows(list);
  for (PlanRow& row : rows) row.optional = !row.exact;
  return rows;
}

}  // namespace zero::planner

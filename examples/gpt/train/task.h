// The command line resolved into model, config and data, before any engine is created.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "examples/gpt/data/data_source.h"
#include "examples/gpt/model/model_config.h"
#include "examples/gpt/train/options.h"
#include "zero/zero.h"

namespace gpt {

struct Task {
  Options options;
  ModelConfig model;
  std::int64_t sequence_length = 0;
  zero::Config config;
  std::unique_ptr<DataSource> data;
};

// Throws ConfigError.
Task resolve(const Options& options);

// The model in the engine's terms; with a pipeline, with what units pass on.
zero::ModelSpec spec_of(const Task& task);

// Returns the stages of the pipeline that the config requests; 1 if it has an error, which
// resolve() then throws.
int pipeline_stages_of(const Options& options);

// Returns multiplications and additions per token, forward and backward, without recomputation.
double flops_per_token(const Task& task);

// Facts about the training run, by name: ranks, model, data, batch, compute.
using Facts = std::vector<std::pair<std::string, std::string>>;
Facts facts_of(const zero::Runtime& runtime, const Task& task, const zero::Engine& engine);

// Collective. Fills the engine from --init, otherwise with start values of the seed.
void set_start_values(zero::Engine& engine, const Task& task, zero::ThreadPool& pool);

}  // namespace gpt

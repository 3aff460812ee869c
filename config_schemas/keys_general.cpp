// Rows of the top level.
#include "config_schemas/key_rows.h"

namespace zero::config_schemas {
namespace {

constexpr std::string_view accelerates =
    "a key of Accelerate's own file, which DeepSpeed does not read; remove it";

std::vector<Key> batch_rows() {
  return {
      {.path = "train_batch_size",
       .type = Type::integer,
       .range = samples,
       .nullable = true,
       .zero_is_absent = true,
       .target = at<&Config::batch, &BatchOptions::train_batch_size>,
       .meaning = "samples per optimizer step over all ranks"},
      {.path = "train_micro_batch_size_per_gpu",
       .type = Type::integer,
       .range = samples,
       .nullable = true,
       .zero_is_absent = true,
       .target = at<&Config::batch, &BatchOptions::train_micro_batch_size_per_gpu>,
       .meaning = "samples per rank and micro step"},
      {.path = "gradient_accumulation_steps",
       .type = Type::integer,
       .range = samples,
       .nullable = true,
       .zero_is_absent = true,
       .target = at<&Config::batch, &BatchOptions::gradient_accumulation_steps>,
       .meaning = "micro steps per optimizer step"},
  };
}

std::vector<Key> step_rows() {
  return {
      {.path = "gradient_clipping",
       .type = Type::number,
       .range = {.low = -1e30, .high = 1e30},
       .target = top<&Config::gradient_clipping>,
       .meaning = "largest global L2 norm of the gradients; 0 or less: no clipping"},
      {.path = "steps_per_print",
       .type = Type::integer,
       .range = limits,
       .nullable = true,
       .infinity_is_null = true,
       .target = top<&Config::steps_per_print>,
       .meaning = "a progress line every so many steps; 0 or null: never"},
      {.path = "seed",
       .type = Type::integer,
       .range = {.low = 0, .high = largest_unsigned},
       .target = top<&Config::seed>,
       .meaning = "of the initial values and the order of the data"},
      refused("managed_gradient_accumulation", Type::boolean, "true",
              "not supported by this version: the engine counts micro steps itself; remove it",
              "whether the engine finds the accumulation boundary"),
      {.path = "prescale_gradients",
       .type = Type::boolean,
       .target = top<&Config::prescale_gradients>,
       .meaning = "divide gradients by the ranks before they are summed, in the dtype of the wire; "
                  "so it is done for an fp16 wire anyway"},
      {.path = "gradient_predivide_factor",
       .type = Type::number,
       .range = positive_rates,
       .target = top<&Config::gradient_predivide_factor>,
       .meaning = "divide gradients by this before they are summed, and by the rest afterwards; "
                  "prescale_gradients wins"},
      {.path = "gradient_allreduce_op",
       .type = Type::choice,
       .choices = {"mean", "sum"},
       .any_case = true,
       .target = top<&Config::gradient_allreduce_op>,
       .meaning =
           "average or sum of the ranks' gradients; a sum is not divided on the wire either, "
           "and clipped as it is"},
  };
}

std::vector<Key> parallel_rows() {
  return {
      in_range(no_effect("sequence_parallel_size", Type::integer, "1",
                         "every rank is a data-parallel rank, and counts as one in the batch",
                         "ranks that share a sequence"),
               ranks),
      in_range(no_effect("data_parallel_size", Type::integer, "1",
                         "the number of started ranks decides", "data-parallel ranks"),
               ranks),
      no_effect("use_data_before_expert_parallelism", Type::boolean, "false",
                "acts with expert parallelism only", "order of ranks in expert groups"),
      no_effect("zero_allow_untested_optimizer", Type::boolean, "false",
                "every optimizer here is tested at every stage",
                "permit optimizers that DeepSpeed has not tested with ZeRO"),
      harmless(no_effect("zero_force_ds_cpu_optimizer", Type::boolean, "true",
                         "concerns optimizers that a Python client brings",
                         "insist on DeepSpeed's CPU optimizers under offload"),
               {"false"}),
  };
}

std::vector<Key> foreign_rows() {
  return {
      in_range(no_effect("allgather_size", Type::integer, "500000000",
                         "only read beside a boolean zero_optimization, as its "
                         "allgather_bucket_size",
                         "old name of zero_optimization.allgather_bucket_size"),
               any_count),
      no_effect("disable_allgather", Type::boolean, "false", "DeepSpeed never uses it either",
                says_nothing),
      no_effect("dataloader_drop_last", Type::boolean, "false",
                "the training program reads the data", "drop the last partial batch"),
      or_null(in_range(
          no_effect("vocabulary_size", Type::integer, "null",
                    "DeepSpeed only warns where it is no multiple of 8", "size of the vocabulary"),
          any_count)),
      no_effect("disable_python_gc", Type::boolean, "false", "there is no Python here",
                "switch Python's garbage collector off"),
      no_effect("zero3_init_flag", Type::boolean, "", accelerates, says_nothing),
      no_effect("zero3_save_16bit_model", Type::boolean, "", accelerates, says_nothing),
      no_effect("gradient_accumulation_dtype", Type::any, "",
                "DeepSpeed does not read it: it is written data_types.grad_accum_dtype",
                says_nothing),
      no_effect("fp32_allreduce", Type::any, "",
                "DeepSpeed does not read it: it is written communication_data_type", says_nothing),
      no_effect("zero_force_ds_cpu_optimization", Type::any, "",
                "DeepSpeed does not read it: it is written zero_force_ds_cpu_optimizer",
                says_nothing),
  };
}

}  // namespace

std::vector<Key> general_rows() {
  std::vector<Key> result;
  for (auto rows : {batch_rows, step_rows, parallel_rows, foreign_rows})
    for (const Key& key : rows()) result.push_back(key);
  return result;
}

}  // namespace zero::config_schemas

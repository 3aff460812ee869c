// The keys of the section `zero_core`.
#include "comm/wire/codec.h"
#include "zero/plan/config_members.h"
#include "zero/plan/key_sections.h"

namespace zero::config_keys {

// The section of ZeroCore's own options.
void add_core(RowList& rows) {
  rows.in(
      "zero_core",
      {section("options that DeepSpeed has no key for"),
       acts("reshard_after_forward", at<&CoreOptions::reshard_after_forward>,
            "stage 3: free gathered parameters between forward and backward (false: "
            "SHARD_GRAD_OP)"),
       acts("gradient_sync", at<&CoreOptions::gradient_sync>, Names{"each", "last", "inner"},
            "reduce gradients after each micro step or after the last; inner: after each inside "
            "groups of shard_group_size, else inner_group_size ranks, after the last over them; "
            "not set: last at stages 0 and 1, each at 2 and 3, inner with shard groups"),
       acts("shard_group_size", at<&CoreOptions::shard_group_size>, ranks,
            "stage 3: ranks that share one copy of parameters, gradients and optimizer states "
            "(HYBRID_SHARD, MiCS); \"node\": those of one node; not set: all ranks")
           .zero_as("node")
           .with(&Key::type, Type::group_size),
       acts("optimizer_over_all_ranks", at<&CoreOptions::optimizer_over_all_ranks>,
            "with shard_group_size: optimizer states are sharded over all ranks all the same "
            "(HFSDP)"),
       acts("reduce_group_size", reduce_groups, ranks,
            "ranks whose sums are formed first; \"node\": the ranks of one node; [4, 8]: groups of "
            "4, then of 8, each larger than the one before and a multiple of it")
           .zero_as("node"),
       acts("inner_group_size", at<&CoreOptions::inner_group_size>, ranks,
            "ranks of the groups inside which gradient_sync inner and zero_quantized_gradients sum "
            "first, one of reduce_group_size; null: the largest of these, or the shard group")
           .or_null(),
       acts("deterministic", at<&CoreOptions::deterministic>,
            "on GPUs: sums in rank order instead of NCCL's own, for equal bits at every stage; "
            "CPU ranks always have them"),
       acts("rank_independent", at<&CoreOptions::rank_independent>,
            "equal bits of losses, gradients and weights at any number of ranks: gradients are "
            "summed in fp32 in the order of the step's micro batches, train_batch_size / "
            "train_micro_batch_size_per_gpu of them; leave gradient_accumulation_steps out"),
       acts("rank_independent_group", at<&CoreOptions::rank_independent_group>, positive_counts,
            "with rank_independent: micro batches whose sum is rounded to the wire dtype before it "
            "is added to the gradient; if it divides the ranks of each node, one sum per group "
            "travels between nodes; the same for the whole run"),
       acts("recompute_every", at<&CoreOptions::recompute_every>, counts,
            "with rank_independent: every N steps each rank repeats a micro batch of another rank, "
            "and a rank that computes other values ends the run before they are applied; 0: never"),
       acts("time_limit_seconds", at<&CoreOptions::time_limit_seconds>, positive_seconds,
            "time limit of every wait for other ranks; in saves and loads, of the time in which no "
            "rank makes progress"),
       acts(
           "deepspeed_defaults", at<&CoreOptions::deepspeed_defaults>, Names{"0.19", "0.14"},
           "whose defaults are used for keys that the file omits: 0.14 clips no gradients, and its "
           "WarmupLR rises to 0.001"),
       acts("on_save_error", at<&CoreOptions::on_save_error>, Names{"stop", "continue"},
            "whether a checkpoint that could not be written ends the run or is only reported"),
       acts("preempt_grace_s", at<&CoreOptions::preempt_grace_s>, seconds,
            "seconds between a signal to stop and the end: if a save of train_gpt would take "
            "longer, none is begun; zero run waits a minute longer before it ends ranks"),
       acts("async_staging_bytes", at<&CoreOptions::async_staging_bytes>, counts,
            "memory of a rank for asynchronous saves, taken at start; 0: as much as it "
            "saves, if checkpoint.writer.decoupled enables them"),
       acts("allow_non_finite_weights", at<&CoreOptions::allow_non_finite_weights>,
            "accept checkpoints and weights that hold NaN or infinity"),
       acts(
           "round_initial_weights", at<&CoreOptions::round_initial_weights>,
           "under bf16 and fp16: master weights begin as the initial values rounded to that dtype, "
           "as DeepSpeed's do; false: as the values themselves"),
       acts("resume_fallback", at<&CoreOptions::resume_fallback>,
            "if a file of the newest checkpoint is damaged, resume from the newest one that is "
            "not; false: an error"),
       acts("peer_copies", at<&CoreOptions::peer_copies>, one_or_none,
            "1: under `zero run --restarts`, keep copies of the training state in the memory of "
            "each host, and of the next one, so that a restart does not read the disk"),
       acts("peer_copies_every", at<&CoreOptions::peer_copies_every>, positive_counts,
            "steps between two copies of peer_copies"),
       acts("verify_every", at<&CoreOptions::verify_every>, counts,
            "if each CPU rank holds all parameters: compare the copies every N steps and "
            "before each save; 0: never")
           .zero_as("0"),
       acts("verify_comm", at<&CoreOptions::verify_comm>,
            "CPU ranks: compare a digest of all data that ranks receive with the sender's, to find "
            "bits that change on the way"),
       acts("start_line", at<&CoreOptions::start_line>,
            "rank 0 of train_gpt and of the Python package prints a line when training starts: "
            "version, stage, device, ranks, clipping, bytes of states per rank"),
       acts(
           "trace", at<&CoreOptions::trace>,
           "file for a trace of the newest steps of all ranks: Engine::write_trace() writes it, or "
           "the engine when it ends, and each rank its own part, next to it, if the run fails"),
       acts("track_changes", at<&CoreOptions::track_changes>,
            "take the memory for Engine::changes(), a bit per trained element of the rank, at the "
            "start; false: at its first call"),
       acts("json_lines", at<&CoreOptions::json_lines>,
            "file for one JSON object per step and diagnostic, appended by rank 0 of programs that "
            "pass their steps to zero::Monitor, as train_gpt and the Python package do"),
       acts("prometheus", at<&CoreOptions::prometheus>,
            "file that each step replaces by its loss, learning rate and diagnostics as Prometheus "
            "text, for the textfile collector of the node exporter; written by rank 0, as "
            "json_lines"),
       acts("offload_chunk_bytes", at<&CoreOptions::offload_chunk_bytes>, positive_counts,
            "largest chunk of offloaded state that is moved and updated at a time"),
       acts("offload_cache_bytes", at<&CoreOptions::offload_cache_bytes>, counts,
            "memory in which the first chunks stay instead of in the file"),
       acts("offload_keep_bytes", at<&CoreOptions::offload_keep_bytes>, counts,
            "GPU ranks: bytes of the first unit's optimizer state that stay on the GPU, because "
            "nothing hides its copies; 0: none"),
       acts("offload_step", at<&CoreOptions::offload_step>, Names{"host", "device", "both"},
            "GPU ranks with offload_optimizer.device cpu: who updates the state in host memory, "
            "the CPU, the GPU, or each some chunks; the bits are the same"),
       acts("offload_host_rate", at<&CoreOptions::offload_host_rate>, bytes_per_second,
            "offload_step both: bytes per second that the CPU's update reads and writes for a "
            "rank; not set: 50e9"),
       acts("offload_bus_rate", at<&CoreOptions::offload_bus_rate>, bytes_per_second,
            "offload_step both: bytes per second each way between a rank's GPU and host memory; "
            "not set: 50e9")});
  const Names formats(std::begin(comm::wire::format_names), std::end(comm::wire::format_names));
  rows.in(
      "zero_core.wire",
      {section("formats in which fewer bytes travel between ranks"),
       acts("gather", at<&WireOptions::gather>, formats,
            "stages 1 to 3: of trainable parameters; frozen ones travel as they are"),
       acts("reduce", at<&WireOptions::reduce>, formats,
            "of gradients, at every stage; sums are formed in fp32 and rounded to "
            "communication_data_type"),
       acts("gather_inside", at<&WireOptions::gather_inside>, formats,
            "of gathers inside a node, if gather or zero_quantized_weights encodes those "
            "between nodes; not set: the same"),
       acts("reduce_inside", at<&WireOptions::reduce_inside>, formats,
            "of sums inside a node, if reduce or zero_quantized_gradients encodes those "
            "between nodes; not set: the same"),
       acts("block_size", at<&WireOptions::block_size>,
            {.low = 32, .high = comm::wire::largest_block},
            "elements that share a scale, a multiple of 32; mxfp8 has 32"),
       acts("max_error", at<&WireOptions::max_error>, rates,
            "measure the relative error of encodings, and print a warning if a unit's is larger; "
            "not set: it is not measured")});
  rows.in("zero_core.pipeline",
          {section("further options of `pipeline`"),
           acts("schedule", at<&PipelineOptions::schedule>,
                Names{"1f1b", "gpipe", "interleaved", "breadth_first", "best"},
                "order of micro batches: 1f1b keeps as many activations as there are stages, gpipe "
                "all; interleaved and breadth_first are these two with chunks; best: 1f1b, or "
                "interleaved if its step is 2 % shorter; the bits are the same"),
           acts("chunks", at<&PipelineOptions::chunks>, ranks,
                "runs of units that each stage has, with those of other stages between: the bubble "
                "is as many times shorter")});
  rows.in("zero_core.param_groups", {section("optimizer groups by name")});
  rows.in(
      "zero_core.param_groups.*",
      {section("one group"),
       acts("lr_scale", in_group<&Group::lr_scale>, rates, "factor of the learning rate"),
       acts("lr", in_group<&Group::lr>, rates,
            "instead of the optimizer's; a schedule starts from it"),
       acts("betas", in_group<&Group::betas>, below_one, "instead of the optimizer's"),
       acts("eps", in_group<&Group::eps>, rates, "instead of the optimizer's"),
       acts("momentum", in_group<&Group::momentum>, unit_interval, "instead of the optimizer's"),
       acts("weight_decay", in_group<&Group::weight_decay>, rates, "instead of the optimizer's")});
}

}  // namespace zero::config_keys

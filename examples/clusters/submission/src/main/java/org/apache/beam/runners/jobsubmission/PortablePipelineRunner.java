package org.apache.beam.runners.jobsubmission;

import org.apache.beam.model.pipeline.v1.RunnerApi;
import org.apache.beam.runners.fnexecution.provisioning.JobInfo;

/** What the runners of Flink and Spark implement to run a pipeline of any language. */
public interface PortablePipelineRunner {
  PortablePipelineResult run(RunnerApi.Pipeline pipeline, JobInfo jobInfo) throws Exception;
}

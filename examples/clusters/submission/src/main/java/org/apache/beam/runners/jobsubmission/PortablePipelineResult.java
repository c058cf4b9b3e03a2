package org.apache.beam.runners.jobsubmission;

import org.apache.beam.model.jobmanagement.v1.JobApi;
import org.apache.beam.sdk.PipelineResult;

/** The result of a pipeline, with its metrics as messages. */
public interface PortablePipelineResult extends PipelineResult {
  JobApi.MetricResults portableMetrics();
}

package org.apache.beam.runners.jobsubmission;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import org.apache.beam.model.pipeline.v1.RunnerApi;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Message;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Struct;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.util.JsonFormat;

/**
 * Read the pipeline that Python has put into this jar.
 *
 * <p>The places are those of UberJarBeamJob in apache_beam/runners/portability/abstract_job_service.py.
 */
public final class PortablePipelineJarUtils {
  private static final String FOLDER = "BEAM-PIPELINE/";

  private PortablePipelineJarUtils() {}

  public static String getDefaultJobName() throws IOException {
    Struct.Builder manifest = Struct.newBuilder();
    read("pipeline-manifest.json", manifest);
    return manifest.getFieldsOrThrow("defaultJobName").getStringValue();
  }

  public static RunnerApi.Pipeline getPipelineFromClasspath(String jobName) throws IOException {
    RunnerApi.Pipeline.Builder pipeline = RunnerApi.Pipeline.newBuilder();
    read(jobName + "/pipeline.json", pipeline);
    return pipeline.build();
  }

  public static Struct getPipelineOptionsFromClasspath(String jobName) throws IOException {
    Struct.Builder options = Struct.newBuilder();
    read(jobName + "/pipeline-options.json", options);
    return options.build();
  }

  private static void read(String name, Message.Builder into) throws IOException {
    ClassLoader loader = PortablePipelineJarUtils.class.getClassLoader();
    try (InputStream stream = loader.getResourceAsStream(FOLDER + name)) {
      if (stream == null) {
        throw new IOException("this jar has no " + FOLDER + name);
      }
      JsonFormat.parser().merge(new String(stream.readAllBytes(), StandardCharsets.UTF_8), into);
    }
  }
}

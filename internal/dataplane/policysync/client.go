package policysync

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/twillnet/twill/api/felixpb"
)

// Read reads a workload's share as its proxy does, from the socket at a path, and calls each with every message as one line of JSON, until the stream ends, each
// returns an error, or, without follow, the share is complete. While it reads, the agent takes it for the proxy.
func Read(ctx context.Context, path string, follow bool, each func(line []byte) error) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	c, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	stream, err := pb.NewPolicySyncClient(c).Sync(ctx, &pb.SyncRequest{})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		text, err := protojson.Marshal(m)
		if err != nil {
			return err
		}
		var line bytes.Buffer // without the spaces that protojson puts in at random
		if err := json.Compact(&line, text); err != nil {
			return err
		}
		if err := each(line.Bytes()); err != nil {
			return err
		}
		if m.GetInSync() != nil && !follow {
			return nil
		}
	}
}

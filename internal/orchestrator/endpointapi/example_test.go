package endpointapi_test

import (
	"context"
	"log"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/twillnet/twill/api/endpointpb"
)

// serve is a plugin: it answers the agent until the connection ends; then call it again.
func serve(ctx context.Context, socket string, find func(*endpointpb.Interface) *endpointpb.Endpoint) error {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := endpointpb.NewEndpointsClient(conn).Connect(ctx)
	if err != nil {
		return err
	}
	me := &endpointpb.Register{Name: "example", Orchestrator: "example"}
	if err := stream.Send(&endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_Register{Register: me}}); err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if ask := m.GetAsk(); ask != nil { // find returns nil: not mine
			answer := &endpointpb.Answer{Number: ask.GetNumber(), Endpoint: find(ask.GetInterface())}
			if err := stream.Send(&endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_Answer{Answer: answer}}); err != nil {
				return err
			}
		}
		if e := m.GetEvent(); e != nil { // PROVISIONED: the workload may start
			log.Println(e.GetKind(), e.GetInterface(), e.GetEndpoint(), e.GetReason())
		}
	}
}
